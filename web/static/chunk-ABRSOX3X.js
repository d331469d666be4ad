import{a as i,b as m}from"./chunk-FAK2RQUH.js";import{G as t}from"./chunk-YTS2K6HE.js";function o({iso:e}){return t("time",{dateTime:e,title:m(e),children:i(e)})}export{o as a};
