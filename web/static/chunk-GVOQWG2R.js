import{a as i,b as m}from"./chunk-EPDVRNIT.js";import{D as t}from"./chunk-ISRLIGKC.js";function o({iso:e}){return t("time",{dateTime:e,title:m(e),children:i(e)})}export{o as a};
