import{a as i,b as m}from"./chunk-W6ORSPA6.js";import{D as t}from"./chunk-5UW5JMG6.js";function o({iso:e}){return t("time",{dateTime:e,title:m(e),children:i(e)})}export{o as a};
